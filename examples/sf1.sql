-- SF1: the 34 tables on persons of the 2010 Census Summary File 1, one statement per table.
-- race is a number: 1 white, 2 black or African American, 4 American Indian and Alaska native, 8 Asian, 16 native
-- Hawaiian and other Pacific islander, 32 some other race; the numbers are added up if several were marked. 0 does not
-- occur after editing: the tables by race leave it out, the totals do not.

-- Total population
-- name: P1
SELECT COUNT(*) FROM person;

-- Race
-- name: P3
SELECT 'total' AS race_group, COUNT(*) FROM person
UNION ALL
SELECT
  CASE race WHEN 1 THEN 'white' WHEN 2 THEN 'black' WHEN 4 THEN 'native' WHEN 8 THEN 'asian' WHEN 16 THEN 'pacific'
    WHEN 32 THEN 'some other race' ELSE 'two or more races' END,
  COUNT(*) FROM person WHERE race <> 0 GROUP BY 1;

-- Hispanic or Latino origin
-- name: P4
SELECT hispanic, COUNT(*) FROM person GROUP BY ROLLUP(hispanic);

-- Hispanic or Latino origin by race
-- name: P5
SELECT hispanic, 'total' AS race_group, COUNT(*) FROM person GROUP BY ROLLUP(hispanic)
UNION ALL
SELECT hispanic,
  CASE race WHEN 1 THEN 'white' WHEN 2 THEN 'black' WHEN 4 THEN 'native' WHEN 8 THEN 'asian' WHEN 16 THEN 'pacific'
    WHEN 32 THEN 'some other race' ELSE 'two or more races' END,
  COUNT(*) FROM person WHERE race <> 0 GROUP BY 1, 2;

-- Race, detailed
-- name: P8
SELECT 'total' AS kind, NULL AS detail, COUNT(*) FROM person
UNION ALL
SELECT 'combination', race, COUNT(*) FROM person WHERE race <> 0 GROUP BY race
UNION ALL
SELECT 'number of races', CASE
    WHEN race IN (1, 2, 4, 8, 16, 32) THEN 1
    WHEN race IN (3, 5, 6, 9, 10, 12, 17, 18, 20, 24, 33, 34, 36, 40, 48) THEN 2
    WHEN race IN (7, 11, 13, 14, 19, 21, 22, 25, 26, 28, 35, 37, 38, 41, 42, 44, 49, 50, 52, 56) THEN 3
    WHEN race IN (15, 23, 27, 29, 30, 39, 43, 45, 46, 51, 53, 54, 57, 58, 60) THEN 4
    WHEN race IN (31, 47, 55, 59, 61, 62) THEN 5
    ELSE 6 END,
  COUNT(*) FROM person WHERE race <> 0 GROUP BY 2
UNION ALL
SELECT 'two or more races', NULL, COUNT(*) FROM person WHERE race NOT IN (0, 1, 2, 4, 8, 16, 32);

-- Hispanic or Latino, and not Hispanic or Latino by race
-- name: P9
SELECT CASE hispanic WHEN 'hispanic or latino' THEN 'hispanic' ELSE 'not hispanic' END AS kind, NULL AS detail, COUNT(*)
  FROM person GROUP BY ROLLUP(1)
UNION ALL
SELECT 'not hispanic: combination', race, COUNT(*) FROM person
  WHERE race <> 0 AND hispanic = 'not hispanic or latino' GROUP BY race
UNION ALL
SELECT 'not hispanic: number of races', CASE
    WHEN race IN (1, 2, 4, 8, 16, 32) THEN 1
    WHEN race IN (3, 5, 6, 9, 10, 12, 17, 18, 20, 24, 33, 34, 36, 40, 48) THEN 2
    WHEN race IN (7, 11, 13, 14, 19, 21, 22, 25, 26, 28, 35, 37, 38, 41, 42, 44, 49, 50, 52, 56) THEN 3
    WHEN race IN (15, 23, 27, 29, 30, 39, 43, 45, 46, 51, 53, 54, 57, 58, 60) THEN 4
    WHEN race IN (31, 47, 55, 59, 61, 62) THEN 5
    ELSE 6 END,
  COUNT(*) FROM person WHERE race <> 0 AND hispanic = 'not hispanic or latino' GROUP BY 2
UNION ALL
SELECT 'not hispanic: two or more races', NULL, COUNT(*) FROM person
  WHERE race NOT IN (0, 1, 2, 4, 8, 16, 32) AND hispanic = 'not hispanic or latino';

-- Race for the population 18 years and over
-- name: P10
SELECT 'total' AS kind, NULL AS detail, COUNT(*) FROM person WHERE age >= 18
UNION ALL
SELECT 'combination', race, COUNT(*) FROM person WHERE race <> 0 AND age >= 18 GROUP BY race
UNION ALL
SELECT 'number of races', CASE
    WHEN race IN (1, 2, 4, 8, 16, 32) THEN 1
    WHEN race IN (3, 5, 6, 9, 10, 12, 17, 18, 20, 24, 33, 34, 36, 40, 48) THEN 2
    WHEN race IN (7, 11, 13, 14, 19, 21, 22, 25, 26, 28, 35, 37, 38, 41, 42, 44, 49, 50, 52, 56) THEN 3
    WHEN race IN (15, 23, 27, 29, 30, 39, 43, 45, 46, 51, 53, 54, 57, 58, 60) THEN 4
    WHEN race IN (31, 47, 55, 59, 61, 62) THEN 5
    ELSE 6 END,
  COUNT(*) FROM person WHERE race <> 0 AND age >= 18 GROUP BY 2
UNION ALL
SELECT 'two or more races', NULL, COUNT(*) FROM person WHERE race NOT IN (0, 1, 2, 4, 8, 16, 32) AND age >= 18;

-- Hispanic or Latino, and not Hispanic or Latino by race, 18 years and over
-- name: P11
SELECT CASE hispanic WHEN 'hispanic or latino' THEN 'hispanic' ELSE 'not hispanic' END AS kind, NULL AS detail, COUNT(*)
  FROM person WHERE age >= 18 GROUP BY ROLLUP(1)
UNION ALL
SELECT 'not hispanic: combination', race, COUNT(*) FROM person
  WHERE race <> 0 AND hispanic = 'not hispanic or latino' AND age >= 18 GROUP BY race
UNION ALL
SELECT 'not hispanic: number of races', CASE
    WHEN race IN (1, 2, 4, 8, 16, 32) THEN 1
    WHEN race IN (3, 5, 6, 9, 10, 12, 17, 18, 20, 24, 33, 34, 36, 40, 48) THEN 2
    WHEN race IN (7, 11, 13, 14, 19, 21, 22, 25, 26, 28, 35, 37, 38, 41, 42, 44, 49, 50, 52, 56) THEN 3
    WHEN race IN (15, 23, 27, 29, 30, 39, 43, 45, 46, 51, 53, 54, 57, 58, 60) THEN 4
    WHEN race IN (31, 47, 55, 59, 61, 62) THEN 5
    ELSE 6 END,
  COUNT(*) FROM person WHERE race <> 0 AND hispanic = 'not hispanic or latino' AND age >= 18 GROUP BY 2
UNION ALL
SELECT 'not hispanic: two or more races', NULL, COUNT(*) FROM person
  WHERE race NOT IN (0, 1, 2, 4, 8, 16, 32) AND hispanic = 'not hispanic or latino' AND age >= 18;

-- Sex by age
-- name: P12
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person GROUP BY ROLLUP(sex, years);

-- Sex by age: White alone
-- name: P12A
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE race = 1 GROUP BY ROLLUP(sex, years);

-- Sex by age: Black alone
-- name: P12B
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE race = 2 GROUP BY ROLLUP(sex, years);

-- Sex by age: American Indian and Alaska native alone
-- name: P12C
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE race = 4 GROUP BY ROLLUP(sex, years);

-- Sex by age: Asian alone
-- name: P12D
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE race = 8 GROUP BY ROLLUP(sex, years);

-- Sex by age: Pacific islander alone
-- name: P12E
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE race = 16 GROUP BY ROLLUP(sex, years);

-- Sex by age: some other race alone
-- name: P12F
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE race = 32 GROUP BY ROLLUP(sex, years);

-- Sex by age: two or more races
-- name: P12G
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE race NOT IN (0, 1, 2, 4, 8, 16, 32) GROUP BY ROLLUP(sex, years);

-- Sex by age: Hispanic or Latino
-- name: P12H
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE hispanic = 'hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by age: White alone, not Hispanic
-- name: P12I
SELECT sex, CASE
    WHEN age <= 4 THEN '0 to 4' WHEN age <= 9 THEN '5 to 9' WHEN age <= 14 THEN '10 to 14'
    WHEN age <= 17 THEN '15 to 17' WHEN age <= 19 THEN '18 to 19' WHEN age <= 20 THEN '20'
    WHEN age <= 21 THEN '21' WHEN age <= 24 THEN '22 to 24' WHEN age <= 29 THEN '25 to 29'
    WHEN age <= 34 THEN '30 to 34' WHEN age <= 39 THEN '35 to 39' WHEN age <= 44 THEN '40 to 44'
    WHEN age <= 49 THEN '45 to 49' WHEN age <= 54 THEN '50 to 54' WHEN age <= 59 THEN '55 to 59'
    WHEN age <= 61 THEN '60 to 61' WHEN age <= 64 THEN '62 to 64' WHEN age <= 66 THEN '65 to 66'
    WHEN age <= 69 THEN '67 to 69' WHEN age <= 74 THEN '70 to 74' WHEN age <= 79 THEN '75 to 79'
    WHEN age <= 84 THEN '80 to 84' ELSE '85 and over' END AS years,
  COUNT(*) FROM person WHERE race = 1 AND hispanic = 'not hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by single years of age
-- name: PCT12
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: White alone
-- name: PCT12A
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 1 GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: Black alone
-- name: PCT12B
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 2 GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: American Indian and Alaska native alone
-- name: PCT12C
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 4 GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: Asian alone
-- name: PCT12D
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 8 GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: Pacific islander alone
-- name: PCT12E
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 16 GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: some other race alone
-- name: PCT12F
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 32 GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: two or more races
-- name: PCT12G
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race NOT IN (0, 1, 2, 4, 8, 16, 32) GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: Hispanic or Latino
-- name: PCT12H
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE hispanic = 'hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: White alone, not Hispanic
-- name: PCT12I
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 1 AND hispanic = 'not hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: Black alone, not Hispanic
-- name: PCT12J
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 2 AND hispanic = 'not hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: American Indian and Alaska native alone, not Hispanic
-- name: PCT12K
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 4 AND hispanic = 'not hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: Asian alone, not Hispanic
-- name: PCT12L
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 8 AND hispanic = 'not hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: Pacific islander alone, not Hispanic
-- name: PCT12M
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 16 AND hispanic = 'not hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: some other race alone, not Hispanic
-- name: PCT12N
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person WHERE race = 32 AND hispanic = 'not hispanic or latino' GROUP BY ROLLUP(sex, years);

-- Sex by single years of age: two or more races, not Hispanic
-- name: PCT12O
SELECT sex, CASE WHEN age < 100 THEN age WHEN age < 105 THEN 100 WHEN age < 110 THEN 105 ELSE 110 END AS years,
  COUNT(*) FROM person
  WHERE race NOT IN (0, 1, 2, 4, 8, 16, 32) AND hispanic = 'not hispanic or latino' GROUP BY ROLLUP(sex, years);
